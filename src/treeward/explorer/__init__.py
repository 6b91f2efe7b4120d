"""Recommend and feedback: a policy, the state of users and a store of events behind one class."""
