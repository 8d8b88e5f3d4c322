"""What each detector finds, and how often it cries over nothing, on seeded runs with a known truth.

    python -m bench.rates [NAME …] [--runs N]

prints a line a case and writes ``bench/results/detectors.json``, from which the pages in ``docs/detectors``
take their rates. One detector alone is judged here, by its evidence; ``bench/quality`` judges verdicts.
"""
