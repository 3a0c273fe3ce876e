"""Do the intervals of rank metrics hold the truth as often as they say?"""
