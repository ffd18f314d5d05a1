"""What are operators told of, and by which emails?"""
