"""What runs in worker processes: the fork server, and a role for each kind of job."""
