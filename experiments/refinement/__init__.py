"""Singh et al. (2021), Tables 2 and 3: what calibrated training does to the order of confidences."""
