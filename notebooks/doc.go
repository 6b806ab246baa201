// Package notebooks holds Jupyter notebooks that look at runs from outside
// exacta: in Python, from the Parquet records of a run directory alone. They are
// for reading and for changing; nothing in exacta depends on them, and this
// package has no code.
//
// acceptance_anatomy.ipynb plots acceptance by position of the draft, with its
// intervals, by class of prompt and along the output, what a step costs, and the
// speed-up that follows. comparing_runs.ipynb compares two points, of one run or
// of two, by a paired bootstrap. Make a run, then open a notebook on it:
//
//	exacta run --dir runs/mine
//	pip install pyarrow matplotlib jupyterlab
//	EXACTA_RUN=runs/mine jupyter lab notebooks/acceptance_anatomy.ipynb
//	EXACTA_RUN=runs/mine EXACTA_POINTS=1-mtp.k4.greedy.c1,1-mtp.k2.greedy.c1 jupyter lab notebooks/comparing_runs.ipynb
//
// execute.py runs a notebook without a browser. The test of this package does
// so on a small run of its own, and compares the figures that the notebooks
// compute from the records with those of package acceptance, digit for digit:
// two programs in two languages read the same columns to the same meaning. It
// takes the Python that EXACTA_PYTHON names, or else python3 if that has the
// libraries, and otherwise says what is missing and skips.
//
// Notebooks are committed without outputs.
package notebooks
