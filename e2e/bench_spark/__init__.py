"""How fast an audit and a backtest are, against Spark's plain reading and counting of the same records."""
