"""What was decided: inbox, numbered log and snapshots, written only by the leader."""
