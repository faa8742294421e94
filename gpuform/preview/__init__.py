"""What a change would do before anybody does it: to nodes and pods, to the bill, and to what must hold."""
