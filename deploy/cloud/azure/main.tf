# A fleet of Spot VMs on Azure, each a node of one run. One that is taken back is deleted with its disk; the scale set tries
# for an hour to make another, which joins with the same invite.
#
#   export TF_VAR_invite="$(cat invite.txt)"
#   terraform apply -var from=https://example.com/pnode/v0.1.0 -var resource_group=... -var subnet=/subscriptions/... -var "key=$(cat ~/.ssh/id_ed25519.pub)"
#
# The invite is in the custom data and in Terraform's state: whoever reads either can use it.
terraform {
  required_version = ">= 1.5"
  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = ">= 4.0, < 5.0"
    }
  }
}

variable "invite" {
  description = "What `pnode invite --uses 50 --ttl 168h` printed: each new VM uses it once"
  type        = string
  sensitive   = true
}

variable "from" {
  description = "Address of the folder with a release's files"
  type        = string
}

variable "resource_group" {
  type = string
}

variable "location" {
  type    = string
  default = "westeurope"
}

variable "subnet" {
  description = "Resource ID of a subnet that leads to the Internet"
  type        = string
}

variable "key" {
  description = "Public key for SSH"
  type        = string
}

variable "nodes" {
  type    = number
  default = 4
}

variable "machine_type" {
  type    = string
  default = "Standard_F8s_v2"
}

variable "disk" {
  description = "GB: two whole checkpoints (24 bytes a parameter) and the text"
  type        = number
  default     = 50
}

provider "azurerm" {
  features {}
}

resource "azurerm_linux_virtual_machine_scale_set" "pnode" {
  name                = "pnode"
  resource_group_name = var.resource_group
  location            = var.location
  sku                 = var.machine_type
  instances           = var.nodes
  overprovision       = false
  upgrade_mode        = "Manual"
  admin_username      = "pnode"

  priority        = "Spot"
  eviction_policy = "Delete"
  max_bid_price   = -1 # up to the price of other VMs: taken back for want of room alone

  spot_restore {
    enabled = true
    timeout = "PT1H"
  }

  custom_data = base64encode(replace(replace(
    file("${path.module}/../cloud-init.yaml"), "pnode1-...", var.invite), "https://example.com/pnode/v0.1.0", var.from
  ))

  # A deletion by the scale set is told as a scheduled event, as a preemption is.
  termination_notification {
    enabled = true
    timeout = "PT5M"
  }

  admin_ssh_key {
    username   = "pnode"
    public_key = var.key
  }

  source_image_reference {
    publisher = "Canonical"
    offer     = "ubuntu-24_04-lts"
    sku       = "server"
    version   = "latest"
  }

  os_disk {
    caching              = "ReadWrite"
    storage_account_type = "Premium_LRS"
    disk_size_gb         = var.disk
  }

  network_interface {
    name    = "pnode"
    primary = true

    ip_configuration {
      name      = "pnode"
      primary   = true
      subnet_id = var.subnet
    }
  }
}
