"""Searches over the versions of a session (workbench/policies/search), with a person who may steer.

store_log       a search's events in the session's database
programs        the space of a problem's programs: the planner's ladder, and changes of one setting
models          the space of what a proposer writes: each child is one proposal
evaluator       makes a candidate a version, judges it without a GPU first, then on the GPU
prefetching     emulates the likely next candidates meanwhile
standing        what becomes of a version that was tried: accepted, rejected or open
live            starts, resumes and steers the searches of a session
"""
