"""How right the verdicts are: faults with a known truth, replayed and scored."""
