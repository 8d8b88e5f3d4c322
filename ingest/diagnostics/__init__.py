"""Reports about hardware from outside a training job: what a diagnosis, a kernel or a driver says."""
