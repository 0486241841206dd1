"""Where traffic comes from: traces that others recorded, and the access logs of what runs today."""
