exports.total = (thing) => {
  return thing.price * thing.count
}
