"""What do dealers pay whose prices are kept in a list of their own?"""
