def two():
    return 1 + 1
