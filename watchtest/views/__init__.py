"""What the user sees: each view is a function of the state. Views import core and errors, never boxes or runners."""
