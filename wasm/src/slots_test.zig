//! Drops, and how workers tell each other of them.

const std = @import("std");
const slots_file = @import("slots.zig");

const Ring = slots_file.Ring;
const Slots = slots_file.Slots;
const expect = std.testing.expect;
const expectEqual = std.testing.expectEqual;

fn fresh() !*Slots {
    const slots = try std.testing.allocator.create(Slots);
    slots.* = .{};
    return slots;
}

test "a drop is for what began before it" {
    const slots = try fresh();
    defer std.testing.allocator.destroy(slots);
    const before = slots.now();
    try expect(slots.alive(before, &.{ 1, 2 }));
    slots.drop(0xABCD_0002);
    try expect(!slots.alive(before, &.{ 1, 2 }));
    try expect(slots.alive(before, &.{1}));
    try expect(slots.alive(slots.now(), &.{ 1, 2 }));
    slots.drop(slots_file.everything);
    try expect(!slots.alive(before, &.{}));
    try expect(slots.alive(slots.now(), &.{ 1, 2 }));
}

test "when the clock has come to its end nothing from before is alive" {
    const slots = try fresh();
    defer std.testing.allocator.destroy(slots);
    slots.clock = std.math.maxInt(u32) - 1;
    const early = slots.now();
    slots.drop(5);
    const last = slots.now();
    try expect(slots.alive(last, &.{5}));
    slots.drop(6);
    try expect(!slots.alive(early, &.{7}));
    try expect(!slots.alive(last, &.{7}));
    try expect(slots.alive(slots.now(), &.{ 5, 6, 7 }));
}

test "what one worker adds another one applies" {
    const slots = try fresh();
    defer std.testing.allocator.destroy(slots);
    var ring: [Ring.size]u8 = undefined;
    var before: [Ring.size]u8 = undefined;
    try expectEqual(0, Ring.apply("", 0, slots));
    Ring.add("", &.{ 11, 12 }, &ring);
    const born = slots.now();
    try expectEqual(2, Ring.apply(&ring, 0, slots));
    try expect(!slots.alive(born, &.{11}) and !slots.alive(born, &.{12}) and slots.alive(born, &.{13}));
    // Only what is new, also around the end of the ring.
    var seen: u64 = 2;
    for (100..1000) |label| {
        before = ring;
        Ring.add(&before, &.{label}, &ring);
        const began = slots.now();
        if (label % 255 == 0) {
            seen = Ring.apply(&ring, seen, slots);
            try expect(!slots.alive(began, &.{slots_file.slotOf(label)}));
            try expect(slots.alive(began, &.{11}));
        }
    }
    // Behind by more than there is: everything goes.
    const began = slots.now();
    for (0..300) |label| {
        before = ring;
        Ring.add(&before, &.{label + 1}, &ring);
    }
    _ = Ring.apply(&ring, seen, slots);
    try expect(!slots.alive(began, &.{}));
}

test "whatever is no ring, or counts backwards, drops everything" {
    const slots = try fresh();
    defer std.testing.allocator.destroy(slots);
    var ring: [Ring.size]u8 = @splat(0);
    var born = slots.now();
    _ = Ring.apply("short", 0, slots);
    try expect(!slots.alive(born, &.{}));
    born = slots.now();
    try expectEqual(0, Ring.apply(&ring, 7, slots));
    try expect(!slots.alive(born, &.{}));
    born = slots.now();
    Ring.add("garbage", &.{5}, &ring);
    _ = Ring.apply(&ring, 0, slots);
    try expect(!slots.alive(born, &.{}));
    try expect(slots.alive(slots.now(), &.{5}));
}
