#[test]
fn a_list_has_a_price() {
    let prices = [3, 4];
    let sum: u32 = prices.iter().map(|price| shop::total(*price, 1)).sum();
    assert_eq!(sum, 7);
}
