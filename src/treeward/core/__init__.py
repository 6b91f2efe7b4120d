"""What every other layer stands on: errors, checks, random draws, compiled code, threads, artefacts."""
