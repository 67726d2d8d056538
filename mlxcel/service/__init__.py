"""mlxcel as a launchd job: where its files are, what they say, and how launchd is asked.

It knows nothing of the server: a job is a program that launchd starts, and a folder of logs.
"""
