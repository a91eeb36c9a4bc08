//! Prices.

/// The price of so many things.
///
/// ```
/// assert_eq!(shop::total(3, 2), 6);
/// ```
pub fn total(price: u32, count: u32) -> u32 {
    price * count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_things() {
        assert_eq!(total(3, 2), 6, "two things");
    }

    #[test]
    fn in_a_thread() {
        std::thread::spawn(|| assert_eq!(total(1, 1), 1)).join().unwrap();
    }

    #[test]
    #[ignore = "not today"]
    fn nothing() {}
}
