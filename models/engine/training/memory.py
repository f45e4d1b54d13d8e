"""When memory runs out: free what can be freed, ask for less, and begin again."""

from collections.abc import Callable

from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size


def while_memory_lasts(work: Callable[[], None], less: Callable[[RuntimeError], None] | None) -> None:
    """Call `work` until it ends; whenever it runs out of memory, call `less` with the error and `work` again.

    As `accelerate.utils.find_executable_batch_size`, whose rule says which errors mean that memory ran out. Without
    `less`, `work` is simply called.
    """
    while True:
        try:
            return work()
        except RuntimeError as error:
            if less is None or not should_reduce_batch_size(error):
                raise
            found = error.with_traceback(None)  # which holds what fills the memory
        clear_device_cache(garbage_collection=True)
        less(found)
