"""Names the values of a graph for what they are: parts, repetitions, leading rows, numbers, stores of state."""
