"""The parent's side of runs on a GPU: who takes turns, what is measured, and how the device is."""
