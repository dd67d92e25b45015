"""Systems that let a language model work with a retriever: a query rewriter, a multi-hop search, the oracle."""
