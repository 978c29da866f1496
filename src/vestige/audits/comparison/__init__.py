"""Which defence leaks less at equal utility?"""
