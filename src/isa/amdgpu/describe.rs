//! `.amdhsa_` directives: a source's description of a kernel, and the descriptor that it makes.
//!
//! Place in the arrows: used by `source`, which reads the lines. Source: AMDGPUUsage «.amdhsa_kernel» (names, ranges
//! and defaults). Left out, and refused by name: reserved registers, preloaded arguments, the size of prefetches (new
//! in LLVM 20), and user SGPRs that these chips do not have.

use super::chip::Chip;
use super::source::{Assembled, SourceKernel};
use doorbell_elf::amdgpu::{
    BitField, KernelCode, KernelDescriptor, KernelSpec, LDS_BYTES, properties, rsrc1, rsrc2, rsrc3,
};

const GFX11: u8 = 1;
const GFX942: u8 = 2;
const GFX12: u8 = 4;
const RDNA: u8 = GFX11 | GFX12;
const ALL: u8 = RDNA | GFX942;

/// A word of the descriptor.
#[derive(Clone, Copy)]
enum Word {
    One,
    Two,
    Three,
    Properties,
}

/// Where a directive's number is stored.
#[derive(Clone, Copy)]
enum Goes {
    /// Into the [`KernelSpec`], by name.
    Spec,
    Field(Word, BitField),
    /// A property that takes so many user SGPRs.
    User(BitField, u32),
}

/// A directive, without `.amdhsa_`.
struct Directive {
    name: &'static str,
    max: u32,
    chips: u8,
    goes: Goes,
}

const fn spec(name: &'static str, max: u32, chips: u8) -> Directive {
    Directive { name, max, chips, goes: Goes::Spec }
}

const fn field(name: &'static str, chips: u8, word: Word, field: BitField) -> Directive {
    Directive { name, max: u32::MAX >> (32 - field.width), chips, goes: Goes::Field(word, field) }
}

const fn user(name: &'static str, field: BitField, sgprs: u32) -> Directive {
    Directive { name, max: 1, chips: ALL, goes: Goes::User(field, sgprs) }
}

const fn exception(name: &'static str, lo: u8) -> Directive {
    field(name, ALL, Word::Two, BitField { name, lo, width: 1 })
}

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    spec("group_segment_fixed_size", LDS_BYTES, ALL),
    spec("private_segment_fixed_size", u32::MAX, ALL),
    spec("kernarg_size", u32::MAX, ALL),
    spec("user_sgpr_count", 16, ALL),
    user("user_sgpr_dispatch_ptr", properties::DISPATCH_PTR, 2),
    user("user_sgpr_queue_ptr", properties::QUEUE_PTR, 2),
    user("user_sgpr_kernarg_segment_ptr", properties::KERNARG_PTR, 2),
    user("user_sgpr_dispatch_id", properties::DISPATCH_ID, 2),
    user("user_sgpr_private_segment_size", properties::PRIVATE_SEGMENT_SIZE, 1),
    spec("wavefront_size32", 1, RDNA),
    field("uses_dynamic_stack", ALL, Word::Properties, properties::DYNAMIC_STACK),
    field("enable_private_segment", ALL, Word::Two, rsrc2::SCRATCH),
    spec("system_sgpr_workgroup_id_x", 1, ALL),
    spec("system_sgpr_workgroup_id_y", 1, ALL),
    spec("system_sgpr_workgroup_id_z", 1, ALL),
    field("system_sgpr_workgroup_info", ALL, Word::Two, rsrc2::WORKGROUP_INFO),
    spec("system_vgpr_workitem_id", 2, ALL),
    spec("next_free_vgpr", 256, RDNA),
    spec("next_free_vgpr", 512, GFX942),
    spec("next_free_sgpr", 106, RDNA),
    spec("next_free_sgpr", 102, GFX942),
    spec("accum_offset", 256, GFX942),
    field("float_round_mode_32", ALL, Word::One, rsrc1::ROUND_32),
    field("float_round_mode_16_64", ALL, Word::One, rsrc1::ROUND_16_64),
    field("float_denorm_mode_32", ALL, Word::One, rsrc1::DENORM_32),
    field("float_denorm_mode_16_64", ALL, Word::One, rsrc1::DENORM_16_64),
    field("dx10_clamp", GFX11 | GFX942, Word::One, rsrc1::DX10_CLAMP),
    field("ieee_mode", GFX11 | GFX942, Word::One, rsrc1::IEEE_MODE),
    field("fp16_overflow", ALL, Word::One, rsrc1::FP16_OVFL),
    field("workgroup_processor_mode", RDNA, Word::One, rsrc1::WGP_MODE),
    field("memory_ordered", RDNA, Word::One, rsrc1::MEM_ORDERED),
    field("forward_progress", RDNA, Word::One, rsrc1::FWD_PROGRESS),
    field("tg_split", GFX942, Word::Three, rsrc3::TG_SPLIT),
    field("shared_vgpr_count", GFX11, Word::Three, rsrc3::SHARED_VGPRS),
    exception("exception_fp_ieee_invalid_op", 24),
    exception("exception_fp_denorm_src", 25),
    exception("exception_fp_ieee_div_zero", 26),
    exception("exception_fp_ieee_overflow", 27),
    exception("exception_fp_ieee_underflow", 28),
    exception("exception_fp_ieee_inexact", 29),
    exception("exception_int_div_zero", 30),
];

fn bit(chip: Chip) -> u8 {
    match chip {
        Chip::Gfx1100 => GFX11,
        Chip::Gfx942 => GFX942,
        Chip::Gfx1201 => GFX12,
    }
}

/// A directive's name and number, if the chip has it and the number fits.
pub(super) fn setting(chip: Chip, key: &str, value: i64) -> Result<(&'static str, u32), String> {
    let mut rows = DIRECTIVES.iter().filter(|d| d.name == key).peekable();
    if rows.peek().is_none() {
        return Err(format!("unknown directive .amdhsa_{key}"));
    }
    let row = rows.find(|d| d.chips & bit(chip) != 0);
    let row = row.ok_or_else(|| format!("{} has no .amdhsa_{key}", chip.name()))?;
    let fits = u32::try_from(value).ok().filter(|v| *v <= row.max);
    let value = fits.ok_or_else(|| format!(".amdhsa_{key} {value}: 0 to {} are possible", row.max))?;
    if key == "accum_offset" && (value == 0 || !value.is_multiple_of(4)) {
        return Err(format!(".amdhsa_{key} {value}: a multiple of 4 from 4 on is wanted"));
    }
    Ok((row.name, value))
}

impl SourceKernel {
    fn get(&self, key: &str) -> Option<u32> {
        self.settings.iter().rev().find(|s| s.0 == key).map(|s| s.1)
    }

    /// The description, without the code's offset.
    ///
    /// # Errors
    /// As text: numbers that contradict each other.
    fn spec(&self, chip: Chip) -> Result<KernelSpec, String> {
        let set = |key: &str, usual: u32| self.get(key).unwrap_or(usual);
        let (accum, free) = (set("accum_offset", 0), set("next_free_vgpr", 1));
        let implied = self.settings.iter().filter(|s| s.1 == 1).filter_map(|s| goes(s.0)).map(|goes| match goes {
            Goes::User(_, sgprs) => sgprs,
            _ => 0,
        });
        let implied = implied.sum();
        let user_sgprs = set("user_sgpr_count", implied);
        if user_sgprs < implied {
            let name = &self.name;
            return Err(format!("kernel {name}: .amdhsa_user_sgpr_count {user_sgprs}, its directives take {implied}"));
        }
        let id = |axis: &str, usual: u32| set(&format!("system_sgpr_workgroup_id_{axis}"), usual) == 1;
        Ok(KernelSpec {
            gpu: chip,
            wave32: set("wavefront_size32", u32::from(!chip.is_gfx9())) == 1,
            vgprs: if accum > 0 { free.min(accum) } else { free },
            acc_vgprs: if accum > 0 { free.saturating_sub(accum) } else { 0 },
            sgprs: set("next_free_sgpr", 16),
            lds_bytes: set("group_segment_fixed_size", 0),
            scratch_bytes: set("private_segment_fixed_size", 0),
            kernarg_bytes: set("kernarg_size", 0),
            user_sgprs,
            workgroup_ids: [id("x", 1), id("y", 0), id("z", 0)],
            workitem_dims: set("system_vgpr_workitem_id", 0) + 1,
        })
    }

    /// The words of the descriptor that a source can set, which are not those that our compiler chooses.
    fn words(&self, spec: &KernelSpec) -> KernelDescriptor {
        let mut d = spec.descriptor();
        let mut props = properties::KERNARG_PTR.set(d.properties.into(), 0);
        d.rsrc1 = rsrc1::DENORM_32.set(d.rsrc1, 0);
        d.rsrc2 = rsrc2::SCRATCH.set(d.rsrc2, 0);
        if let Some(accum) = self.get("accum_offset") {
            d.rsrc3 = rsrc3::ACCUM_OFFSET.set(d.rsrc3, accum / 4 - 1);
        }
        for (name, value) in &self.settings {
            let (word, field) = match goes(name) {
                Some(Goes::Field(word, field)) => (word, field),
                Some(Goes::User(field, _)) => (Word::Properties, field),
                Some(Goes::Spec) | None => continue,
            };
            let place = match word {
                Word::One => &mut d.rsrc1,
                Word::Two => &mut d.rsrc2,
                Word::Three => &mut d.rsrc3,
                Word::Properties => &mut props,
            };
            *place = field.set(*place, *value);
        }
        d.properties = u16::try_from(props).unwrap_or_default();
        d
    }
}

/// The directives that make a descriptor.
pub(super) fn directives(chip: Chip, d: &KernelDescriptor) -> Vec<(&'static str, u32)> {
    let mut all = Vec::new();
    for directive in DIRECTIVES.iter().filter(|row| row.chips & bit(chip) != 0) {
        let value = match directive.goes {
            Goes::Spec => of_spec(chip, directive.name, d),
            Goes::User(field, _) => field.get(d.properties.into()),
            Goes::Field(Word::One, field) => field.get(d.rsrc1),
            Goes::Field(Word::Two, field) => field.get(d.rsrc2),
            Goes::Field(Word::Three, field) => field.get(d.rsrc3),
            Goes::Field(Word::Properties, field) => field.get(d.properties.into()),
        };
        // An exception that is not enabled, an argument that is not passed.
        let is_usual =
            value == 0 && (directive.name.starts_with("exception") || matches!(directive.goes, Goes::User(..)));
        if !is_usual {
            all.push((directive.name, value));
        }
    }
    all
}

/// The number of a directive that goes into the description of a kernel.
fn of_spec(chip: Chip, name: &str, d: &KernelDescriptor) -> u32 {
    match name {
        "group_segment_fixed_size" => d.group_segment_bytes,
        "private_segment_fixed_size" => d.private_segment_bytes,
        "kernarg_size" => d.kernarg_bytes,
        "user_sgpr_count" => rsrc2::USER_SGPRS.get(d.rsrc2),
        "wavefront_size32" => u32::from(d.wave32()),
        "system_sgpr_workgroup_id_x" => rsrc2::WORKGROUP_X.get(d.rsrc2),
        "system_sgpr_workgroup_id_y" => rsrc2::WORKGROUP_Y.get(d.rsrc2),
        "system_sgpr_workgroup_id_z" => rsrc2::WORKGROUP_Z.get(d.rsrc2),
        "system_vgpr_workitem_id" => rsrc2::WORKITEM_ID.get(d.rsrc2),
        "next_free_vgpr" => d.vgprs(chip),
        // The six that the hardware keeps are not counted; other chips always have all.
        "next_free_sgpr" if chip.is_gfx9() => (8 * (rsrc1::SGPRS.get(d.rsrc1) + 1)).saturating_sub(6).min(102),
        "next_free_sgpr" => 106,
        "accum_offset" => 4 * (rsrc3::ACCUM_OFFSET.get(d.rsrc3) + 1),
        _ => 0,
    }
}

fn goes(name: &str) -> Option<Goes> {
    DIRECTIVES.iter().find(|d| d.name == name).map(|d| d.goes)
}

impl Assembled {
    /// A kernel that the source describes: its code extends from its label to the next kernel's.
    ///
    /// # Errors
    /// As text: no label of that name, directives that contradict each other.
    pub fn kernel_code(&self, chip: Chip, kernel: &SourceKernel) -> Result<KernelCode, String> {
        let place = |name: &str| self.labels.iter().find(|l| l.0 == name).map(|l| l.1);
        let start = place(&kernel.name).ok_or_else(|| format!("kernel {}: no such label", kernel.name))?;
        let next = self.kernels.iter().filter_map(|k| place(&k.name)).filter(|p| *p > start).min();
        let words = self.words.get(start..next.unwrap_or(self.words.len())).unwrap_or_default();
        let spec = kernel.spec(chip)?;
        Ok(KernelCode {
            name: kernel.name.clone(),
            code: words.iter().flat_map(|w| w.to_le_bytes()).collect(),
            descriptor: kernel.words(&spec),
            args: Vec::new(),
            sgprs: spec.sgprs,
            vgprs: spec.vgprs,
            acc_vgprs: spec.acc_vgprs,
            max_workgroup: 1024,
        })
    }
}
