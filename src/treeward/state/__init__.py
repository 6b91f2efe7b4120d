"""The state of users in memory: a bounded cache of what their events say, and where items are."""
