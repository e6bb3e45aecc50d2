//! Listings: control words, labels, hidden fields, errors with lines.

use crate::nvidia::disassemble;
use doorbell::isa::sass::{Control, assemble, decode, listing_line, print_at};

const COUNTDOWN: &str = "
    [B------:R-:W0:Y:S02] S2R R0, SR_TID.X ;
    [B0-----:R-:W-:-:S04] IADD3 R0, R0, -0x1, RZ ;   // once before
loop:
    [B------:R-:W-:Y:S13] ISETP.NE.AND P0, PT, R0, RZ, PT ;
    [B------:R-:W-:-:S04] @P0 IADD3 R0, R0, -0x1, RZ ;
    [B------:R-:W-:-:S05] @P0 BRA .loop ;
    [B------:R-:W-:Y:S05] EXIT ;
end:
    [B------:R-:W-:Y:S00] BRA .end;
";

#[test]
fn a_loop_assembles_to_what_nvdisasm_reads() {
    let words = assemble(COUNTDOWN).expect("the listing assembled");
    let texts: Vec<String> = disassemble(&words).into_iter().map(|t| t.expect("an instruction to nvdisasm")).collect();
    assert_eq!(
        texts,
        [
            "S2R R0, SR_TID.X",
            "IADD3 R0, R0, -0x1, RZ",
            "ISETP.NE.AND P0, PT, R0, RZ, PT",
            "@P0 IADD3 R0, R0, -0x1, RZ",
            "@P0 BRA 0x20",
            "EXIT",
            "BRA 0x60",
        ]
    );
}

#[test]
fn a_listing_of_words_assembles_to_the_same_words() {
    let words = assemble(COUNTDOWN).expect("the listing assembled");
    let line = |(i, w): (usize, &u128)| listing_line(&decode(*w).expect("an instruction"), 16 * i as u64);
    let listing: Vec<String> = words.iter().enumerate().map(line).collect();
    assert_eq!(assemble(&listing.join("\n")), Ok(words));
}

#[test]
fn fields_that_no_text_shows_survive_a_listing() {
    let plain = assemble("[B------:R-:W-:-:S01] IADD3 R0, R1, R2, R3 ;").expect("assembled")[0];
    let odd = plain & !(15 << 77) | 2 << 77;
    let inst = decode(odd).expect("an instruction");
    assert_eq!(print_at(&inst, 0), "IADD3 R0, R1, R2, R3");
    let line = listing_line(&inst, 0);
    assert_eq!(line, "[B------:R-:W-:-:S01] IADD3 R0, R1, R2, R3 ; {pq=0x2, pq.not=0x0}");
    assert_eq!(assemble(&line), Ok(vec![odd]));
}

#[test]
fn control_words_read_as_they_are_written() {
    let all = Control { stall: 11, yields: false, write: Some(5), read: Some(0), wait: 0b10_0101, extra: true };
    assert_eq!(all.to_string(), "[B0-2--5:R0:W5:-:S11:E]");
    assert_eq!(Control::parse("[B0-2--5:R0:W5:-:S11:E]"), Some(all));
    assert_eq!(Control::parse("[B1-----:R-:W-:-:S01]"), None);
}

#[test]
fn errors_name_line_column_and_what_is_wrong() {
    let error = |text| assemble(text).expect_err("an error").to_string();
    assert_eq!(
        error("\n FADD R0, R1, R2 ;"),
        "line 2: no control word of the form [B------:R-:W-:-:S01] before the instruction"
    );
    assert_eq!(error("[B------:R-:W-:-:S01] FAD R0, R1, R2 ;"), "line 1: column 2: no instruction \"FAD\"");
    assert_eq!(
        error("[B------:R-:W-:-:S01] FADD R0, R1, R256 ;"),
        "line 1: column 15: no form of FADD reads on at \"R256\""
    );
    assert_eq!(
        error("[B------:R-:W-:-:S12] NOP ;"),
        "line 1: NOP/N: stall 12 without yield: the limits are 0 to 15 with yield and 1 to 11 without"
    );
    assert_eq!(error("[B------:R-:W-:-:S01] BRA .x ;"), "line 1: label x stands nowhere");
    assert_eq!(error("x:\nx:"), "line 2: label x stands here and in line 1");
}
