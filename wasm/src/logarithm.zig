//! The natural logarithm, after `e_log.c` of FreeBSD's msun: wrong in the last place at most, without the tables of 4 KiB that
//! the compiler's own has. The draws that are compared by it differ by far more, but for one in a million millions.

const std = @import("std");

const ln2_high = 6.93147180369123816490e-01;
const ln2_low = 1.90821492927058770002e-10;
const coefficients = [_]f64{
    1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
    2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01,
};

/// Of a normal number above 0.
pub fn ln(x: f64) f64 {
    const bits: u64 = @bitCast(x);
    // The fraction between half and twice the root of 2, and the power of 2 that belongs to it.
    const shifted = (bits >> 32) + (0x3ff00000 - 0x3fe6a09e);
    const power: f64 = @floatFromInt(@as(i64, @intCast(shifted >> 20)) - 0x3ff);
    const high = (shifted & 0xfffff) + 0x3fe6a09e;
    const f = @as(f64, @bitCast(high << 32 | (bits & 0xffffffff))) - 1.0;
    const s = f / (2.0 + f);
    const z = s * s;
    var sum: f64 = 0.0;
    for (coefficients) |coefficient| sum = (sum + coefficient) * z;
    const half = 0.5 * f * f;
    return s * (half + sum) + power * ln2_low - half + f + power * ln2_high;
}

test "as good as the standard library's" {
    var random: std.Random.DefaultPrng = .init(1);
    for (0..100_000) |_| {
        const x = (@as(f64, @floatFromInt(random.random().int(u53))) + 0.5) * 0x1p-53;
        try std.testing.expectApproxEqRel(@log(x), ln(x), 4e-16);
    }
    for ([_]f64{ 0x1p-54, 1.0 - 0x1p-53, 0.5, 0.7071067811865475, 0.7071067811865476 }) |x| {
        try std.testing.expectApproxEqRel(@log(x), ln(x), 4e-16);
    }
}
