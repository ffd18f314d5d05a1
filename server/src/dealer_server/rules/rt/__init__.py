"""What do clients of the RT-* family of reseller APIs read? (docs/decisions/0049-rt-face.md)"""
