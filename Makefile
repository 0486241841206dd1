# Every target sets up what it needs first (scripts/bootstrap.py); running it again costs nothing.
BOOTSTRAP = python3 scripts/bootstrap.py

.PHONY: demo test test-heavy lint lock

demo: ; @$(BOOTSTRAP) demo
test: ; @$(BOOTSTRAP) test
test-heavy: ; @$(BOOTSTRAP) test-heavy
lint: ; @$(BOOTSTRAP) lint
lock: ; @python3 scripts/lock.py
