"""Executes a notebook from its first cell to its last, as Jupyter would.

    python execute.py NOTEBOOK [OUTPUT]

NOTEBOOK stays as it is; OUTPUT, if given, is the notebook with its outputs. The first cell that fails ends it with exit code 1
and the cell's traceback. Needs nbformat, nbclient and ipykernel.
"""

import sys

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError


def main(notebook, output=None):
    nb = nbformat.read(notebook, as_version=4)
    nbformat.validate(nb)
    try:
        NotebookClient(nb, timeout=300, kernel_name="python3").execute()
    except CellExecutionError as e:
        sys.exit(str(e))
    if output:
        nbformat.write(nb, output)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
