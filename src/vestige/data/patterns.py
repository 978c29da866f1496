"""Regular expressions that may take exponential time.

A repetition inside a repetition can be tried in exponentially many ways, and several beside each
other in a power of the text's length. What is let through has none of the first, and few of the
others where the texts are long.
"""


def slow_reason(pattern: str, *, longest: int, repetitions: int | None = None) -> str | None:
    """Reason why a regular expression may take exponential time, or None.

    Args:
        pattern: as `re`, Oniguruma or Rust write it.
        longest: letters that it may have.
        repetitions: of how many parts without a bound it may consist; None: of any number.

    Example:
        >>> slow_reason(r".*\\.(q|v)_proj", longest=99)
        >>> slow_reason(r"(a+)+$", longest=99)
        'it repeats a repetition'
    """
    if len(pattern) > longest:
        return f"it has {len(pattern):,} letters"
    found, inside = 0, [False]
    place, in_class = 0, False
    while place < len(pattern):
        letter = pattern[place]
        if letter == "\\":
            place += 1
        elif in_class:
            in_class = letter != "]"
        elif letter == "[":
            in_class = True
        elif letter == "(":
            inside.append(False)
        elif letter == ")" and len(inside) > 1:
            repeats = inside.pop()
            if repeats and pattern[place + 1 : place + 2] in ("*", "+", "{"):
                return "it repeats a repetition"
            inside[-1] |= repeats
        elif letter in "*+" or (letter == "{" and pattern[place + 1 : place + 2].isdigit()):
            found += 1
            inside[-1] = True
        place += 1
    if repetitions is not None and found > repetitions:
        return f"it repeats in {found} places"
    return None
