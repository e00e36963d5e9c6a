"""`make bench-queue`: the queue on three stores, beside queues on Redis and one on S3."""
