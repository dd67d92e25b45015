"""How a retriever for oblique queries is made: nothing here reads a query or a judgment of a benchmark."""
