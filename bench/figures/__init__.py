"""Pictures of each detector firing and staying quiet, and the generated parts of the pages that show them.

    python -m bench.figures [NAME …] [--check]

runs the real detectors on recorded sample logs or small seeded series, draws the numbers that they computed
(never a sketch of them), and writes ``docs/detectors/figures/*.svg`` and what stands between the marks in
``docs/detectors/*.md``. ``--check`` writes nothing and says what would change.
"""
