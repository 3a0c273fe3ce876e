"""The paper's theory as code: entropy's gradient, the starts it gives, and what it promises."""
