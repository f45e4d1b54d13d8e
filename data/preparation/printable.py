"""Names of files, categories and joints as text that can be printed and drawn."""


def printable(name: str) -> str:
    r"""Return the text with `\udce9` for what is no UTF-8: bytes in the names of files, surrogates from JSON."""
    return name.encode(errors="backslashreplace").decode()
