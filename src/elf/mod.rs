//! Machine code → ELF object → placed and relocated image.
