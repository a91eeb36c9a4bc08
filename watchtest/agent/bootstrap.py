"""Start the agent: read its source, a zip archive, from stdin and run it. Passed to `python -I -c`.

Arguments: the agent's home, the root of the tree, and the size of the archive in bytes.
"""

import io
import os
import sys
import tempfile
import zipfile

home, root, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
data = b""
while len(data) < size:
    piece = os.read(0, size - len(data))
    if not piece:
        sys.exit("watchtest agent: the stream ended before the agent's source was complete")
    data += piece
os.makedirs(home, exist_ok=True)
folder = tempfile.mkdtemp(prefix="agent-", dir=home)
zipfile.ZipFile(io.BytesIO(data)).extractall(folder)
sys.path.insert(0, folder)
from watchtest_agent.main import main  # type: ignore[import-not-found]  # noqa: E402  the package just unpacked

main(home, root)
