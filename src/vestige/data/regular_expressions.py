"""Regular expressions that may take exponential time.

A repetition inside a repetition can match in exponentially many ways, and n repetitions in a row in
a number of ways that grows as the n-th power of the text's length.
"""


def slow_reason(pattern: str, *, longest: int, repetitions: int | None = None) -> str | None:
    """Reason why a regular expression may take exponential time, or None.

    Args:
        pattern: as `re`, Oniguruma or Rust write it.
        longest: the most characters that it may have.
        repetitions: the most unbounded repetitions that it may have; None: any number.

    Example:
        >>> slow_reason(r".*\\.(q|v)_proj", longest=99)
        >>> slow_reason(r"(a+)+$", longest=99)
        'it repeats a repetition'
    """
    if len(pattern) > longest:
        return f"it has {len(pattern):,} letters"
    count = 0
    group_repeats = [False]  # for each open group, whether it has a repetition
    index, in_class = 0, False
    while index < len(pattern):
        character = pattern[index]
        if character == "\\":
            index += 1
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character == "(":
            group_repeats.append(False)
        elif character == ")" and len(group_repeats) > 1:
            repeats = group_repeats.pop()
            if repeats and pattern[index + 1 : index + 2] in ("*", "+", "{"):
                return "it repeats a repetition"
            group_repeats[-1] |= repeats
        elif character in "*+" or (character == "{" and pattern[index + 1 : index + 2].isdigit()):
            count += 1
            group_repeats[-1] = True
        index += 1
    if repetitions is not None and count > repetitions:
        return f"it repeats in {count} places"
    return None
