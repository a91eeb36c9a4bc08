pub fn with_tax(price: u32) -> u32 {
    price + price / 5
}

#[test]
fn a_fifth() {
    assert_eq!(with_tax(10), 12);
}
