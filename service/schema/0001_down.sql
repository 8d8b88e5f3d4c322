DROP TABLE fence;

DROP TABLE offsets;

DROP TABLE checkpoints;

DROP TABLE runs;

DROP TABLE incidents;

DROP TABLE rejected;
