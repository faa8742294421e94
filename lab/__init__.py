"""Everything that simulates clouds, nodes and operands; of the product only the command line imports it."""
