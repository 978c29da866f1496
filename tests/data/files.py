"""Files of tests: written into a folder, and compressed."""

import gzip


def packed(content):
    """The content compressed by gzip."""
    return gzip.compress(content.encode() if isinstance(content, str) else content, mtime=0)


def write(path, content):
    """Write text or bytes to a file, and make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_all(folder, files):
    """Make a folder with a file for each name that has a content."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if content is not None:
            write(folder / name, content)
    return folder
