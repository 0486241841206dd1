"""Settings that every test shares."""

from hypothesis import settings

# No deadline: two busy cores make any example slow once, and pytest's own timeout catches a hang.
settings.register_profile("turnout", deadline=None)
settings.load_profile("turnout")
