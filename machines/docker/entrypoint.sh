#!/bin/sh
# What containers run: DVC with these arguments. SIGTERM (`docker stop`) ends the stage that runs, a training with a
# resume point. DVC would die of it and leave the stage to be killed, so it ignores the signal, and ends as its stage has
# failed.
dvc=$$
(
    # To all of this process group, as tini does; again and again, as it may come between two stages, and a stage minds
    # the first.
    asked=
    trap "trap '' TERM; asked=yes" TERM
    while kill -0 "$dvc" 2>/dev/null; do
        [ -z "$asked" ] || kill -s TERM 0
        sleep 1 &
        wait $!
    done
) 2>/dev/null & # the shell would tell of each `sleep` that the signal ends
trap '' TERM
exec dvc "$@"
