export interface Thing {
  price: number
  count: number
}

export function total(thing: Thing): number {
  return thing.price * thing.count
}
