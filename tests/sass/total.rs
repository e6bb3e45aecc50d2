//! The decoder over random words: an instruction that encodes to the same word, or a named error.

use doorbell::isa::sass::{DecodeReason, Form, decode, encode, print};

fn random(state: &mut u64) -> u128 {
    let mut half = || {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        u128::from(*state)
    };
    half() << 64 | half()
}

fn check(word: u128) -> bool {
    match decode(word) {
        Ok(inst) => {
            assert_eq!(encode(&inst), Ok(word), "{}", print(&inst));
            true
        }
        Err(e) => {
            assert_eq!(e.word, word);
            false
        }
    }
}

#[test]
fn a_million_random_words_round_trip_or_are_refused() {
    let mut state = 0x5a55_0001;
    (0..1_000_000).for_each(|_| {
        check(random(&mut state));
    });
}

#[test]
fn random_operands_under_every_opcode_round_trip_or_are_refused() {
    let mut state = 0x5a55_0002;
    let mut read = 0;
    for form in Form::all() {
        let opcode = u128::from(form.opcode & 0xfff) | u128::from(form.opcode >> 12) << 91;
        for _ in 0..400 {
            // Reserved bits clear in most, so that many words get through.
            let fields = form.fields.iter().flat_map(|f| f.bits).fold(0u128, |m, b| m | range(b.0, b.1));
            let word =
                random(&mut state) & (fields | range(12, 15) | range(105, 121)) & !range(0, 11) & !(1 << 91) | opcode;
            read += usize::from(check(word));
        }
    }
    assert!(read > 5_000, "only {read} words were instructions");
}

fn range(low: u8, high: u8) -> u128 {
    (u128::MAX >> (127 - (high - low))) << low
}

#[test]
fn one_flipped_bit_of_an_instruction_round_trips_or_is_refused() {
    let ffma = 0x000f_c800_0000_0003_0000_0002_0100_7223_u128 & !0xff_0000 | 0x04_0000;
    assert!(check(ffma));
    (0..128).for_each(|bit| {
        check(ffma ^ 1 << bit);
    });
}

#[test]
fn refusals_name_opcode_field_and_bits() {
    let reason = |word| decode(word).map(|i| print(&i)).map_err(|e| e.reason);
    assert_eq!(reason(0), Err(DecodeReason::UnknownOpcode { opcode: 0 }));
    let nop = 0x000f_c000_0000_0000_0000_0000_0000_7918;
    assert_eq!(reason(nop), Ok("NOP".to_owned()));
    let reserved = reason(nop | 1 << 100).map_err(|r| r.to_string());
    assert_eq!(
        reserved,
        Err("NOP/N: bits 0x00000010000000000000000000000000 belong to no field and are set".to_owned())
    );
    let stall = reason(nop | 0x1f << 105).map_err(|r| r.to_string());
    assert_eq!(stall, Err("stall 15 without yield: the limits are 0 to 15 with yield and 1 to 11 without".to_owned()));
}
