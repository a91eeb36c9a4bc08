const { total } = require('./price')

describe('total', () => {
  it('is a product', () => {
    expect(total({ price: 3, count: 2 })).toBe(6)
  })

  it.each([1, 2])('of %i (one by one) > 0', (count) => {
    expect(total({ price: 1, count })).toBeGreaterThan(0)
  })

  it.todo('has a tax')
})

test('nothing costs nothing', () => {
  expect(total({ price: 0, count: 2 })).toBe(0)
})
